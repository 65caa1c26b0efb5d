"""The project's variables as the C++ libraries read them (trireme/base/env.h), for what is decided before those are loaded."""

import os

TRUE = ("1", "on", "true", "yes")
FALSE = ("0", "off", "false", "no")


def flag(name: str) -> bool:
    """Raises ValueError for a value that is neither; unset or empty is false."""
    value = os.environ.get(name, "")
    if value in TRUE:
        return True
    if value in ("", *FALSE):
        return False
    raise ValueError(f"{name}={value}: expected 0 or 1 (or off|on, false|true, no|yes)")
