"""The collection tfctl.cluster, of links, with other files in the places of some, or with more files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tfctl.provision import ansible

PARTS = ("galaxy.yml", "meta", "playbooks", "plugins", "roles")


def link_collection(folder: Path, more: Mapping[str, str | None]) -> Path:
    """Create the collection below ``folder``/collections, and return that directory, for ANSIBLE_COLLECTIONS_PATH. It
    may be there from an earlier call.

    ``more``: the texts of additional or other files by their paths in the collection. A directory whose text is None
    contains only those.
    """
    collections = folder / "collections"
    root, real = ansible.collection(collections), ansible.data_dir()
    own = {parent for name in more for parent in PurePosixPath(name).parents} | {PurePosixPath()}
    own |= {PurePosixPath(name) for name, text in more.items() if text is None}
    for place in sorted(own):
        (root / place).mkdir(parents=place == PurePosixPath(), exist_ok=True)
        empty = any(more.get(str(each), "") is None for each in (place, *place.parents))
        for entry in [] if empty or not (real / place).is_dir() else sorted((real / place).iterdir()):
            wanted = entry.name in PARTS if place == PurePosixPath() else entry.name != "__pycache__"
            if wanted and place / entry.name not in own and str(place / entry.name) not in more:
                (root / place / entry.name).unlink(missing_ok=True)
                (root / place / entry.name).symlink_to(entry)
    for name, text in more.items():
        if text is not None:
            (root / name).write_text(text)
    return collections
