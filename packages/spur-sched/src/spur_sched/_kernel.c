/* The loops of a search for promised room, as `search` has them in Python: that is what they mean, and both
 * must find the same to the last bit.  Nothing here allocates, keeps state of its own or knows Python: the
 * caller gives one struct with the borders of its arrays (see `kernel.Search`, which has the same fields).
 *
 * Compiled without options that change floating point arithmetic.  Instants are never NaN; numbers of tasks
 * and their sums are kept far from the ends of 64 bits by the caller.
 */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef SPUR_KERNEL_SOURCE
#define SPUR_KERNEL_SOURCE ""
#endif

/* What this was built from: only its own source may use it. */
const char spur_kernel_source[] = SPUR_KERNEL_SOURCE;

enum { CPUS, MEMORY, EMPTY };
enum { NOTHING = -1, COUNTED = 256 };

typedef struct {
    /* The table of steps (`rows.Rows`). */
    int64_t size, stride, rows;
    const int64_t *where;
    const double *begins, *lasts, *falls;
    const int64_t *room;
    /* By column. */
    int64_t columns;
    const uint8_t *member, *promised;
    const int64_t *from_nodes; /* or NULL */
    /* Rows that are sums of others: `sums` times (row, how many, the others). */
    int64_t sums;
    const int64_t *summed;
    /* The request. */
    int64_t parts;
    const int64_t *bounds, *betters, *row, *fixed, *each;
    int64_t exclusive, mixes, per_node, least, most, level;
    int64_t nodes, tasks_wanted, most_nodes;
    double now, secs, forever, resolution, after, horizon;
    /* Candidates, in order of their starts; `step` is their slot. */
    int64_t count, place;
    double *starts, *limits, *sure, *firm;
    int64_t *step, *tasks;
    /* Those that are there at `instant`, in order of their columns. */
    double instant;
    int64_t there, begun;
    int64_t *there_at, *there_where, *there_tasks;
    /* Room to work in: `size` numbers each, `rows`, and `columns`. */
    double *keep_starts, *keep_limits, *keep_sure, *keep_firm;
    int64_t *keep_step, *keep_tasks;
    int64_t *order, *other, *vector, *by_column;
    uint64_t *keys, *other_keys;
    uint8_t *good;
} Search;

int64_t spur_kernel_size(void) { return (int64_t)sizeof(Search); }

static int64_t floored(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b < 0 ? q - 1 : q;
}

/* Starts before this are over by the instant. */
static double latest(double instant, double secs) {
    if (isinf(secs)) return instant < INFINITY ? -INFINITY : INFINITY;
    return nextafter(instant - secs, INFINITY);
}

/* Numbers in the order of the instants. */
static uint64_t key_of(double instant) {
    uint64_t bits;
    instant += 0.0; /* -0.0 is 0.0 */
    memcpy(&bits, &instant, sizeof bits);
    return bits >> 63 ? ~bits : bits | (1ull << 63);
}

/* The stable order of `count` keys into `order`. */
static void sort(Search *s, int64_t count) {
    uint64_t some = 0, all = ~0ull;
    int64_t *order = s->order, *other = s->other;
    uint64_t *keys = s->keys, *other_keys = s->other_keys;
    for (int64_t i = 0; i < count; i++) {
        keys[i] = key_of(s->keep_starts[i]);
        some |= keys[i];
        all &= keys[i];
        order[i] = i;
    }
    for (int shift = 0; shift < 64; shift += 8) {
        int64_t heads[256] = {0}, sum = 0;
        if (!(((some ^ all) >> shift) & 255)) continue;
        for (int64_t i = 0; i < count; i++) heads[(keys[i] >> shift) & 255]++;
        for (int d = 0; d < 256; d++) {
            int64_t number = heads[d];
            heads[d] = sum;
            sum += number;
        }
        for (int64_t i = 0; i < count; i++) {
            int64_t to = heads[(keys[i] >> shift) & 255]++;
            other[to] = order[i];
            other_keys[to] = keys[i];
        }
        int64_t *swap = order;
        order = other;
        other = swap;
        uint64_t *swap_keys = keys;
        keys = other_keys;
        other_keys = swap_keys;
    }
    if (order != s->order) memcpy(s->order, order, (size_t)count * sizeof *order);
}

/* Whether the step holds `level` tasks, where it holds one. */
static int better(const Search *s, int64_t i) {
    for (int64_t p = 0; p < s->parts; p++)
        if (s->each[p] && s->room[s->row[p] * s->stride + i] < s->betters[p]) return 0;
    return 1;
}

/* Comparing long numbers many at a time takes more than the least processor has. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

WIDE static void mark(uint8_t *good, const int64_t *room, int64_t bound, int64_t size) {
    for (int64_t i = 0; i < size; i++) good[i] &= room[i] >= bound;
}

/* `search._candidates`, in order, and where `_Sweep.run` begins. */
void spur_candidates(Search *s) {
    const int64_t size = s->size, least = s->least > 1 ? s->least : 1;
    const int further = s->level > least;
    uint8_t *good = s->good;
    memset(good, 1, (size_t)size);
    for (int64_t p = 0; p < s->parts; p++)
        mark(good, s->room + s->row[p] * s->stride, s->bounds[p], size);
    if (s->exclusive) mark(good, s->room + EMPTY * s->stride, 0, size);
    if (s->from_nodes) {
        const int64_t *room = s->room + MEMORY * s->stride;
        for (int64_t i = 0; i < size; i++) good[i] &= room[i] >= s->from_nodes[s->where[i]];
    }
    /* The last slot of each node has no room, so no column runs into the next one. */
    int64_t some = 0, count = 0;
    if (size) good[size - 1] = 0;
    for (int64_t i = 0; i < size; i++) {
        s->other[some] = i;
        some += good[i] & (s->begins[i] <= s->horizon) & (s->lasts[i] > s->after);
    }
    for (int64_t c = 0; c < some; c++) {
        const int64_t i = s->other[c];
        if (!s->member[s->where[i]]) continue;
        double start = s->begins[i];
        if (s->resolution > 0 && start > s->now && start < s->forever)
            start = ceil(start / s->resolution) * s->resolution;
        if (start < s->after) start = s->after;
        if (!(s->lasts[i] > start && start <= s->horizon)) continue;
        int64_t next = i + 1;
        while (good[next]) next++;
        double limit = latest(s->begins[next], s->secs);
        if (s->lasts[i] < limit) limit = s->lasts[i];
        if (!(limit > start)) continue;
        int64_t tasks = s->per_node;
        for (int64_t p = 0; p < s->parts; p++)
            if (s->each[p]) {
                int64_t held = s->room[s->row[p] * s->stride + i];
                /* Division is slow. */
                if (tasks > 1 || held < s->each[p]) held = floored(held, s->each[p]);
                if (held < tasks) tasks = held;
            }
        if (tasks > s->most) tasks = s->most;
        if (tasks < least) continue;
        double firm = limit;
        if (further) {
            firm = -INFINITY;
            if (tasks >= s->level) {
                int64_t far = i + 1;
                while (good[far] && better(s, far)) far++;
                firm = latest(s->begins[far], s->secs);
            }
        }
        s->keep_starts[count] = start;
        s->keep_limits[count] = limit;
        s->keep_step[count] = i;
        s->keep_tasks[count] = tasks;
        s->keep_firm[count] = firm;
        s->keep_sure[count++] = s->mixes                             ? -INFINITY
                                : s->most > least && tasks > least ? latest(s->falls[i], s->secs)
                                                                   : limit;
    }
    sort(s, count);
    int64_t sum = 0, place = s->nodes - 1, whole = NOTHING;
    for (int64_t i = 0; i < count; i++) {
        int64_t from = s->order[i];
        s->starts[i] = s->keep_starts[from];
        s->limits[i] = s->keep_limits[from];
        s->sure[i] = s->keep_sure[from];
        s->firm[i] = s->keep_firm[from];
        s->step[i] = s->keep_step[from];
        s->tasks[i] = s->keep_tasks[from];
        sum += s->tasks[i];
        if (whole < 0 && sum >= s->tasks_wanted) whole = i;
    }
    if (s->tasks_wanted) {
        if (whole < 0) whole = count;
        if (whole > place) place = whole;
    }
    s->count = count;
    s->place = place;
}

/* `_Sweep._look` at one: 1 = it holds less than was thought. */
static int look(Search *s, int64_t one, double instant) {
    const int64_t step = s->step[one], stride = s->stride, at = s->where[step];
    const double end = instant < s->forever ? instant + s->secs : INFINITY;
    int64_t *room = s->vector, next = step + 1;
    int mixed = 0;
    for (int64_t r = 0; r < s->rows; r++) room[r] = s->room[r * stride + step];
    for (; next < s->size && s->begins[next] < end; next++)
        for (int64_t r = 0; r < s->rows; r++) {
            int64_t later = s->room[r * stride + next];
            if (later < room[r]) {
                room[r] = later;
                mixed = 1;
            }
        }
    if (mixed) {
        const int64_t *sum = s->summed;
        for (int64_t i = 0; i < s->sums; i++) {
            int64_t row = sum[0], others = sum[1], found = 0;
            for (int64_t j = 0; j < others; j++)
                if (room[sum[2 + j]] > 0) found += room[sum[2 + j]];
            room[row] = found;
            sum += 2 + others;
        }
    }
    double until = INFINITY;
    if (s->promised[at])
        for (; next < s->size && s->begins[next] < INFINITY && isinf(until); next++)
            for (int64_t r = 0; r < s->rows; r++)
                if (s->room[r * stride + next] < room[r]) {
                    until = s->begins[next];
                    break;
                }
    int64_t tasks = s->per_node;
    if ((s->exclusive && room[EMPTY] < 0) || (s->from_nodes && room[MEMORY] < s->from_nodes[at])) tasks = 0;
    for (int64_t p = 0; p < s->parts && tasks > 0; p++) {
        int64_t free = room[s->row[p]];
        if (free < s->fixed[p]) tasks = 0;
        else if (s->each[p]) {
            free = floored(free, s->each[p]);
            if (free < tasks) tasks = free > 0 ? free : 0;
        }
    }
    if (tasks > s->most) tasks = s->most;
    /* NaN, where both never end, is not greater. */
    double sure = nextafter(until - s->secs, INFINITY);
    if (sure > s->sure[one]) s->sure[one] = sure;
    if (tasks < (s->least > 1 ? s->least : 1)) {
        s->limits[one] = instant;
        return 1;
    }
    if (tasks < s->tasks[one]) {
        s->tasks[one] = tasks;
        return 1;
    }
    return 0;
}

/* Look at these of `there` if they are not certain; whether one holds less than was thought. */
int64_t spur_look(Search *s, int64_t count, const int64_t *chosen) {
    int learned = 0;
    for (int64_t i = 0; i < count; i++)
        if (s->sure[chosen[i]] <= s->instant) learned |= look(s, chosen[i], s->instant);
    return learned;
}

/* The number of which fewer than `most` of so many are greater, but not of the next smaller one. */
static int64_t level_of(Search *s, const int64_t *there, int64_t count, int64_t most) {
    int64_t low = INT64_MAX, high = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t tasks = s->tasks[there[i]];
        if (tasks < low) low = tasks;
        if (tasks > high) high = tasks;
    }
    if (high - low < COUNTED) {
        int64_t numbers[COUNTED] = {0}, reached = 0;
        for (int64_t i = 0; i < count; i++) numbers[s->tasks[there[i]] - low]++;
        for (; high > low; high--) {
            reached += numbers[high - low];
            if (reached >= most) break;
        }
        return high;
    }
    /* The greatest number that at least `most` reach. */
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2, reached = 0;
        for (int64_t i = 0; i < count; i++) reached += s->tasks[there[i]] >= middle;
        if (reached >= most) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* `_Sweep._roomiest`: how many are there still. */
static int64_t roomiest(Search *s, int64_t *there, int64_t count, int64_t *short_of, int64_t *least) {
    const double instant = s->instant;
    const int64_t most = s->most_nodes;
    if (s->level > (s->least > 1 ? s->least : 1))
        for (int64_t i = 0; i < count; i++)
            if (s->firm[there[i]] <= instant && s->tasks[there[i]] >= s->level)
                s->tasks[there[i]] = s->level - 1;
    *short_of = *least = 0;
    for (;;) {
        int64_t level = INT64_MIN, equal = count, sum = 0, lowest = INT64_MAX;
        if (count > most) {
            int64_t greater = 0;
            level = level_of(s, there, count, most);
            for (int64_t i = 0; i < count; i++) greater += s->tasks[there[i]] > level;
            equal = most - greater;
        }
        int64_t left = equal;
        for (int64_t i = 0; i < count; i++) {
            int64_t tasks = s->tasks[there[i]];
            if (tasks < level || (tasks == level && left-- <= 0)) continue;
            sum += tasks;
            if (tasks < lowest) lowest = tasks;
        }
        if (s->tasks_wanted > sum) {
            *short_of = s->tasks_wanted - sum;
            *least = count >= most ? lowest : 0;
            return count;
        }
        int learned = 0;
        left = equal;
        for (int64_t i = 0; i < count; i++) {
            int64_t tasks = s->tasks[there[i]];
            if (tasks < level || (tasks == level && left-- <= 0)) continue;
            if (s->sure[there[i]] <= instant) learned |= look(s, there[i], instant);
        }
        if (!learned) return count;
        int64_t kept = 0;
        for (int64_t i = 0; i < count; i++)
            if (s->limits[there[i]] > instant) there[kept++] = there[i];
        count = kept;
    }
}

/* From `place` to the next instant at which enough are there: 1, and who they are; 0 = there is none. */
int64_t spur_sweep(Search *s) {
    const int64_t size = s->count;
    int64_t *there = s->order;
    while (s->place < size) {
        const double instant = s->instant = s->starts[s->place];
        int64_t begun = s->place + 1, count = 0, short_of = 0, least = 0;
        while (begun < size && s->starts[begun] <= instant) begun++;
        for (int64_t i = 0; i < begun; i++) {
            there[count] = i;
            count += s->limits[i] > instant;
        }
        int64_t lack = s->nodes - count;
        if (lack <= 0 && s->tasks_wanted) {
            count = roomiest(s, there, count, &short_of, &least);
            lack = s->nodes - count;
        }
        if (lack <= 0 && short_of <= 0) {
            /* In the order of their columns, each of which is there once. */
            for (int64_t at = 0; at < s->columns; at++) s->by_column[at] = NOTHING;
            for (int64_t i = 0; i < count; i++) s->by_column[s->where[s->step[there[i]]]] = there[i];
            int64_t to = 0;
            for (int64_t at = 0; at < s->columns; at++)
                if (s->by_column[at] != NOTHING) {
                    s->there_at[to] = s->by_column[at];
                    s->there_where[to] = at;
                    s->there_tasks[to++] = s->tasks[s->by_column[at]];
                }
            s->there = to;
            s->begun = begun;
            return 1;
        }
        int64_t place = begun + (lack > 1 ? lack - 1 : 0);
        if (short_of > 0 && begun < size) {
            /* Who comes in helps by what it holds more than the least of those that count. */
            int64_t more = 0, at = begun;
            for (; at < size; at++) {
                if (s->tasks[at] > least) more += s->tasks[at] - least;
                if (more >= short_of) break;
            }
            if (at > place) place = at;
        }
        s->place = place;
    }
    return 0;
}
