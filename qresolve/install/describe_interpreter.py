"""Runs inside the target interpreter (3.10 or newer), which knows nothing of qresolve. Prints one JSON object.

It is started with ``-I`` from a neutral folder, so neither the working directory nor the user's variables add
anything to what is found here.
"""

import json
import os
import platform
import sys
import sysconfig
from importlib import metadata


def distributions() -> "list[dict[str, object]]":
    """Every installed distribution in import order; a second copy of a name is listed as well."""
    found: list[dict[str, object]] = []
    for distribution in metadata.distributions():
        path = getattr(distribution, "_path", None)
        try:
            name, version = distribution.metadata["Name"], distribution.metadata["Version"]
        except Exception as error:  # noqa: BLE001 - a broken folder is a finding, not an end
            name, version = None, None
            found.append({"name": name, "version": version, "path": str(path), "problem": repr(error)})
            continue
        problem = None if name and version else "its METADATA has no name or no version"
        found.append({"name": name, "version": version, "path": str(path), "problem": problem})
    return found


def main() -> None:
    """Print the description."""
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        glibc = None
    paths = sysconfig.get_paths()
    json.dump(
        {
            "executable": sys.executable,
            "version": ".".join(str(number) for number in sys.version_info[:3]),
            "implementation": sys.implementation.name,
            "prefix": sys.prefix,
            "base_prefix": sys.base_prefix,
            "platform": sys.platform,
            "machine": platform.machine(),
            "libc": glibc,
            "site_packages": paths["purelib"],
            "platform_packages": paths["platlib"],
            "programs": paths["scripts"],
            "distributions": distributions(),
        },
        sys.stdout,
    )


main()
