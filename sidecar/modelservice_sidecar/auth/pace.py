"""How often an issuer's keys are asked for, and how long they are believed.

Owns these figures alone, so that who configures them imports no cryptography.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyPace:
    """Seconds. `fresh`: between looks. `again`: at least between any two fetches. `believed`: how long the last good keys
    outlive their provider. `unknown`: how long a key id that was not there is not asked for again. `patience`: for a fetch.
    """

    fresh: float = 300.0
    again: float = 10.0
    believed: float = 3600.0
    unknown: float = 60.0
    patience: float = 5.0
