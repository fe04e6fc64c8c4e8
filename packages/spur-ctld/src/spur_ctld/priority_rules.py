"""How this controller makes priorities, from `[scheduler]`.  Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spur_core.config.model import Config
from spur_sched.priority.rules import MAX_AGE, Rules, Weights

#: Every NO_NORMAL_... flag at once.
_ALL: Final = "NO_NORMAL_ALL"


class PriorityRules(NamedTuple):
    """The configured way.

    Attributes:
        multifactor: False = the simple formula; of `rules` it goes by the maximal age alone.
        period: seconds between two looks at the clock: in between ages stand still.
        running: attempts are looked at anew like waiting jobs (CALCULATE_RUNNING).
        licenses: totals, for their weights.
        flags: as configured, for whoever looks.
    """

    multifactor: bool = False
    rules: Rules = Rules()
    period: float = 300.0
    running: bool = False
    licenses: Mapping[str, int] = {}
    flags: tuple[str, ...] = ()


def priority_rules(config: Config) -> PriorityRules:
    """From the file."""
    section = config.scheduler
    flags = section.priority_flags

    def normal(flag: str) -> bool:
        return _ALL not in flags and flag not in flags

    return PriorityRules(
        multifactor=section.priority_type == "multifactor",
        rules=Rules(
            weights=Weights(
                age=section.priority_weight_age,
                assoc=section.priority_weight_assoc,
                fairshare=section.priority_weight_fairshare,
                job_size=section.priority_weight_job_size,
                partition=section.priority_weight_partition,
                qos=section.priority_weight_qos,
                tres=tuple(sorted((n, w) for n, w in section.priority_weight_tres.items() if w)),
            ),
            max_age=float(section.priority_max_age or MAX_AGE),
            favor_small=section.priority_favor_small,
            relative_to_time="SMALL_RELATIVE_TO_TIME" in flags,
            accrue_always="ACCRUE_ALWAYS" in flags,
            normal_assoc=normal("NO_NORMAL_ASSOC"),
            normal_partition=normal("NO_NORMAL_PART"),
            normal_qos=normal("NO_NORMAL_QOS"),
            normal_tres=normal("NO_NORMAL_TRES"),
        ),
        period=float(section.priority_calc_period_secs),
        running="CALCULATE_RUNNING" in flags,
        licenses=dict(config.licenses),
        flags=flags,
    )


def as_slurm_shows(own: PriorityRules) -> dict[str, str]:
    """The lines of `scontrol show config`."""
    rules = own.rules
    weights = rules.weights
    tres = ",".join(f"{name}={weight}" for name, weight in weights.tres)
    return {
        "PriorityType": "priority/multifactor" if own.multifactor else "priority/basic",
        "PriorityCalcPeriod": _clock(int(own.period)),
        "PriorityFavorSmall": "Yes" if rules.favor_small else "No",
        "PriorityFlags": ",".join(own.flags),
        "PriorityMaxAge": _clock(int(rules.max_age)),
        "PriorityWeightAge": str(weights.age),
        "PriorityWeightAssoc": str(weights.assoc),
        "PriorityWeightFairShare": str(weights.fairshare),
        "PriorityWeightJobSize": str(weights.job_size),
        "PriorityWeightPartition": str(weights.partition),
        "PriorityWeightQOS": str(weights.qos),
        "PriorityWeightTRES": tres or "(null)",
    }


def _clock(secs: int) -> str:
    """D-HH:MM:SS."""
    days, rest = divmod(secs, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
