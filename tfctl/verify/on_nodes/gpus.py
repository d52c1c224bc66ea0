"""What nvidia-smi reports about the GPUs of this host; nothing where it is missing."""

import re
import shutil
import subprocess


def uuids():
    """Return the UUIDs of the driver's GPUs."""
    return re.findall("UUID: (GPU-[0-9a-f-]+)", ask("-L"))


def fields(uuid, *names):
    """Return these fields of a GPU as text, or []."""
    said = ask("-i", uuid, "--query-gpu=" + ",".join(names), "--format=csv,noheader,nounits").strip()
    return said.split(", ") if said else []


def ask(*words):
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    said = subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return said.stdout.decode("utf-8", "replace")
