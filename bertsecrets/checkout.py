"""The version-controlled folder that a run is started in."""

import functools


@functools.cache
def commit() -> str | None:
    """Return the commit of the repository that the present folder is in; None outside of one.

    It ends in `-dirty` where files were changed since.
    """
    from pytest_benchmark.utils import get_commit_info

    found = get_commit_info(project_name="")
    if found["id"] in ("unversioned", "unknown"):
        return None
    return found["id"] + ("-dirty" if found["dirty"] else "")
