"""Make playbooks/module_utils importable as ansible.module_utils, as Ansible does on nodes."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

ROOT = Path(__file__).resolve().parents[3]
ansible.module_utils.__path__.append(str(ROOT / "playbooks" / "module_utils"))
