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

/* The next greater number, as `nextafter` has it. */
static double up(double number) {
    int64_t bits;
    if (!(number < INFINITY)) return number;
    if (number == 0) number = 0.0;
    memcpy(&bits, &number, sizeof bits);
    if (number == 0) bits = 1;
    else bits += number > 0 ? 1 : -1;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Starts before this are over by the instant. */
static double latest(double instant, double secs) {
    if (isinf(secs)) return instant < INFINITY ? -INFINITY : INFINITY;
    return up(instant - secs);
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

WIDE static void mark(const Search *s, uint8_t *good) {
    const int64_t *room = s->room + s->row[0] * s->stride, bound = s->bounds[0], size = s->size;
    const double *begins = s->begins, *lasts = s->lasts, horizon = s->horizon, after = s->after;
    for (int64_t i = 0; i < size; i++)
        good[i] = (room[i] >= bound) & (begins[i] <= horizon) & (lasts[i] > after);
}

/* Whether the step holds a task. */
static int holds(const Search *s, int64_t i) {
    for (int64_t p = 0; p < s->parts; p++)
        if (s->room[s->row[p] * s->stride + i] < s->bounds[p]) return 0;
    if (s->exclusive && s->room[EMPTY * s->stride + i] < 0) return 0;
    return !s->from_nodes || s->room[MEMORY * s->stride + i] >= s->from_nodes[s->where[i]];
}

/* `search._candidates`, in order, and where `_Sweep.run` begins. */
void spur_candidates(Search *s) {
    const int64_t size = s->size, least = s->least > 1 ? s->least : 1;
    const int further = s->level > least;
    uint8_t *good = s->good;
    int64_t count = 0;
    mark(s, good);
    for (int64_t i = 0; i < size; i++) {
        uint64_t eight;
        if (i % 8 == 0 && i + 8 <= size) {
            memcpy(&eight, good + i, 8);
            if (!eight) {
                i += 7;
                continue;
            }
        }
        if (!good[i] || !s->member[s->where[i]] || !holds(s, i)) continue;
        double start = s->begins[i];
        if (s->resolution > 0 && start > s->now && start < s->forever)
            start = ceil(start / s->resolution) * s->resolution;
        if (start < s->after) start = s->after;
        if (!(s->lasts[i] > start && start <= s->horizon)) continue;
        /* The last slot of each node has no room, so no column runs into the next one. */
        int64_t next = i + 1;
        while (next + 1 < size && holds(s, next)) next++;
        if (next == size) continue;
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
                while (far < next && better(s, far)) far++;
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

/* The sums of a vector of least values. */
static void resum(int64_t *room, int64_t sums, const int64_t *sum) {
    for (int64_t i = 0; i < sums; i++) {
        int64_t row = sum[0], others = sum[1], found = 0;
        for (int64_t j = 0; j < others; j++)
            if (room[sum[2 + j]] > 0) found += room[sum[2 + j]];
        room[row] = found;
        sum += 2 + others;
    }
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
    if (mixed) resum(room, s->sums, s->summed);
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
    double sure = up(until - s->secs);
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

/* The time of nodes, as `timeline._occupy` and `rows.Rows.replace` have it. */
typedef struct {
    int64_t size, stride, rows, lost;
    int64_t *where;
    double *begins, *lasts, *falls;
    int64_t *room;
    /* By column: first slot, slots, slots in use. */
    int64_t *heads, *given, *used;
    /* What is free at worst, `rows` times `columns`. */
    int64_t columns;
    int64_t *low;
    int64_t sums;
    const int64_t *summed;
    const uint8_t *promised;
    int64_t *vector;
} Table;

int64_t spur_table_size(void) { return (int64_t)sizeof(Table); }

static void copy_slot(Table *t, int64_t from, int64_t to) {
    t->begins[to] = t->begins[from];
    for (int64_t r = 0; r < t->rows; r++) t->room[r * t->stride + to] = t->room[r * t->stride + from];
}

static void clear_slot(Table *t, int64_t slot) {
    t->room[CPUS * t->stride + slot] = -1;
    t->begins[slot] = INFINITY;
}

static void insert_slot(Table *t, int64_t head, int64_t used, int64_t place, double begin) {
    for (int64_t i = used; i > place; i--) copy_slot(t, head + i - 1, head + i);
    copy_slot(t, head + place - 1, head + place);
    t->begins[head + place] = begin;
}

/* Take `vector` from `start` to `end` out of each of these columns' time, and work out what is free at worst on
 * it if it has promises.  Gives how many were done: the next one is not in the table, or the table is full. */
int64_t spur_occupy(Table *t, int64_t count, const int64_t *columns, const double *starts, const double *ends,
                    const int64_t *vectors) {
    for (int64_t one = 0; one < count; one++) {
        const int64_t at = columns[one], *vector = vectors + one * t->rows;
        const double start = starts[one], end = ends[one];
        int64_t head = t->heads[at], used = t->used[at], first = 0;
        if (!used) return one;
        if (used + 3 > t->given[at]) {
            /* To the end, with slots to spare. */
            const int64_t more = used + 3 + used / 2;
            if (t->size + more > t->stride) return one;
            for (int64_t i = 0; i < used; i++) {
                copy_slot(t, head + i, t->size + i);
                t->lasts[t->size + i] = t->lasts[head + i];
                clear_slot(t, head + i);
            }
            t->lost += t->given[at];
            head = t->heads[at] = t->size;
            t->given[at] = more;
            t->size += more;
            for (int64_t i = 0; i < more; i++) t->where[head + i] = at;
            for (int64_t i = used; i < more; i++) clear_slot(t, head + i);
        }
        /* Of steps with one beginning only the last one holds. */
        int64_t kept = 0;
        for (int64_t i = 0; i < used; i++)
            if (t->lasts[head + i] > -INFINITY) {
                if (kept < i) copy_slot(t, head + i, head + kept);
                kept++;
            }
        for (int64_t i = kept; i < used; i++) clear_slot(t, head + i);
        used = kept;
        while (first + 1 < used && t->begins[head + first + 1] <= start) first++;
        if (t->begins[head + first] < start) {
            first++;
            insert_slot(t, head, used++, first, start);
        }
        int64_t last = used;
        if (end < INFINITY) {
            for (last = first; last < used && t->begins[head + last] < end; last++) continue;
            if (last == used || t->begins[head + last] != end) insert_slot(t, head, used++, last, end);
        }
        for (int64_t r = 0; r < t->rows; r++)
            if (vector[r])
                for (int64_t i = first; i < last; i++) t->room[r * t->stride + head + i] -= vector[r];
        t->used[at] = used;
        double fall = INFINITY;
        for (int64_t i = used - 1; i >= 0; i--) {
            const int64_t slot = head + i;
            t->lasts[slot] = i + 1 < used ? t->begins[slot + 1] : INFINITY;
            t->falls[slot] = fall;
            for (int64_t r = 0; i && r < t->rows; r++)
                if (t->room[r * t->stride + slot] < t->room[r * t->stride + slot - 1]) {
                    fall = t->begins[slot];
                    break;
                }
        }
        if (t->promised[at]) {
            for (int64_t r = 0; r < t->rows; r++) {
                const int64_t *room = t->room + r * t->stride + head;
                int64_t least = room[0];
                for (int64_t i = 1; i < used; i++)
                    if (room[i] < least) least = room[i];
                t->vector[r] = least;
            }
            resum(t->vector, t->sums, t->summed);
            for (int64_t r = 0; r < t->rows; r++) t->low[r * t->columns + at] = t->vector[r];
        }
    }
    return count;
}

/* `Timeline.window`: the least room into `vector`, and until when. */
double spur_window(Table *t, int64_t at, double start, double end) {
    const int64_t head = t->heads[at], used = t->used[at], stride = t->stride;
    int64_t place = 0, *least = t->vector;
    int mixed = 0;
    while (place + 1 < used && t->begins[head + place + 1] <= start) place++;
    for (int64_t r = 0; r < t->rows; r++) least[r] = t->room[r * stride + head + place];
    for (place++; place < used && t->begins[head + place] < end; place++)
        for (int64_t r = 0; r < t->rows; r++) {
            int64_t later = t->room[r * stride + head + place];
            if (later < least[r]) {
                least[r] = later;
                mixed = 1;
            }
        }
    if (mixed) resum(least, t->sums, t->summed);
    if (t->promised[at])
        for (; place < used; place++)
            for (int64_t r = 0; r < t->rows; r++)
                if (t->room[r * stride + head + place] < least[r]) return t->begins[head + place];
    return INFINITY;
}

enum { NO_CHOICE = -1, CANNOT = -2, MOST_COUNTED = 4096 };

/* `spread._even`: as equal as the nodes allow. */
static void even(int64_t count, const int64_t *room, int64_t left, int64_t *parts, int64_t *open) {
    int64_t opened = 0;
    for (int64_t i = 0; i < count; i++) {
        parts[i] = 0;
        if (room[i] > 0) open[opened++] = i;
    }
    while (left > 0 && opened) {
        int64_t level = left / opened, kept = 0;
        for (int64_t i = 0; i < opened; i++) {
            int64_t more = room[open[i]] - parts[open[i]];
            if (more < level) level = more;
        }
        if (level < 1) level = 1;
        for (int64_t i = 0; i < opened; i++) {
            int64_t part = level < left ? level : left;
            parts[open[i]] += part;
            left -= part;
        }
        for (int64_t i = 0; i < opened; i++)
            if (parts[open[i]] < room[open[i]]) open[kept++] = open[i];
        opened = kept;
    }
}

/* `shape._pick` with a number of tasks: how many nodes, and of each its column, its tasks (`chosen`, four times
 * `most` numbers, half of them to work in). */
int64_t spur_pick(int64_t count, const int64_t *where, const int64_t *tasks, int64_t least, int64_t most,
                  int64_t wanted, int64_t evenly, int64_t *chosen) {
    int64_t *parts = chosen + most, *other = parts + most, sum = 0, size = 0;
    int64_t numbers[MOST_COUNTED + 1];
    if (least == 1)
        for (int64_t i = 0; i < count; i++)
            if (tasks[i] >= wanted) {
                chosen[0] = where[i];
                parts[0] = wanted;
                return 1;
            }
    for (int64_t i = 0; i < least; i++) sum += tasks[i];
    if (sum >= wanted)
        for (; size < least; size++) chosen[size] = size;
    else {
        int64_t high = 0, held = 0, taken = 0, equal = 0;
        for (int64_t i = 0; i < count; i++)
            if (tasks[i] > high) high = tasks[i];
        if (high > MOST_COUNTED) return CANNOT;
        memset(numbers, 0, (size_t)(high + 1) * sizeof *numbers);
        for (int64_t i = 0; i < count; i++) numbers[tasks[i]]++;
        /* The biggest first, of equals the first, as many as it takes. */
        for (; high > 0; high--) {
            int64_t need = held < wanted ? (wanted - held + high - 1) / high : 0;
            if (need < least - taken) need = least - taken;
            equal = numbers[high] < most - taken ? numbers[high] : most - taken;
            if (need < equal) equal = need;
            held += equal * high;
            taken += equal;
            if (taken == most || (held >= wanted && taken >= least)) break;
        }
        if (held < wanted || taken < least) return NO_CHOICE;
        for (int64_t i = 0; i < count && size < taken; i++)
            if (tasks[i] > high || (tasks[i] == high && equal-- > 0)) chosen[size++] = i;
    }
    /* What each has, in place of its part. */
    for (int64_t i = 0; i < size; i++) other[i] = tasks[chosen[i]];
    for (int64_t i = 0; i < size; i++) chosen[i] = where[chosen[i]];
    if (evenly) {
        even(size, other, wanted, parts, other + most);
        return size;
    }
    for (int64_t i = 0; i < size; i++) {
        int64_t part = wanted - (size - i - 1);
        parts[i] = other[i] < part ? other[i] : part;
        wanted -= parts[i];
    }
    return size;
}

/* `bounds.Failures.cover`: whether one of the rows asks for no more of anything. */
int64_t spur_cover(int64_t count, int64_t size, const double *table, const double *ask) {
    for (int64_t one = 0; one < count; one++, table += size) {
        int64_t i = 0;
        while (i < size && table[i] <= ask[i]) i++;
        if (i == size) return 1;
    }
    return 0;
}
