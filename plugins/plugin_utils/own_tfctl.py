"""Make the tfctl that belongs to this collection importable, in place of one that is installed beside Ansible.

In a checkout and in a built collection, it is in the root of the collection; in the wheel, the package contains the
collection. Plugins import this module before they import tfctl.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, next(str(each) for each in Path(__file__).resolve().parents if (each / "tfctl/errors.py").exists()))
