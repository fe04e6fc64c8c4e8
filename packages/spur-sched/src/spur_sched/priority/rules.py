"""How priorities are made, from `[scheduler]`; names and meanings are Slurm's (PriorityWeight*, Flags)."""

from typing import Final, NamedTuple

#: Seconds after which the age factor is 1, unless the site says otherwise (PriorityMaxAge).
MAX_AGE: Final = 7 * 86_400.0
#: Largest priority; 0 is a held job.
HIGHEST: Final = 0xFFFFFFFF


class Weights(NamedTuple):
    """What a factor of 1.0 adds to the priority."""

    age: int = 0
    assoc: int = 0
    fairshare: int = 0
    job_size: int = 0
    partition: int = 0
    qos: int = 0
    #: TRES name ("cpu", "mem", "gres/gpu", ...) -> weight, sorted by name.
    tres: tuple[tuple[str, int], ...] = ()


class Rules(NamedTuple):
    """Everything besides the jobs that a multifactor priority goes by.

    Attributes:
        max_age: seconds.
        favor_small: small jobs get the large size factors (PriorityFavorSmall).
        relative_to_time: the size factor is size by time limit (SMALL_RELATIVE_TO_TIME).
        accrue_always: age counts from the submission, whatever the job waits for (ACCRUE_ALWAYS).
        normal_assoc, normal_partition, normal_qos, normal_tres: False = the factor is the site's number
            itself and not its part of the largest one (NO_NORMAL_*).
    """

    weights: Weights = Weights()
    max_age: float = MAX_AGE
    favor_small: bool = False
    relative_to_time: bool = False
    accrue_always: bool = False
    normal_assoc: bool = True
    normal_partition: bool = True
    normal_qos: bool = True
    normal_tres: bool = True
