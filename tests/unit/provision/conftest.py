"""The code that runs on nodes is imported as Ansible would: from ansible.module_utils."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

ROOT = Path(__file__).resolve().parents[3]
ansible.module_utils.__path__.append(str(ROOT / "playbooks" / "module_utils"))
