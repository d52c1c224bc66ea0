"""Wait for the score of every worker in TF_CONFIG, and print which learning rate was best.

The hosts must share the output directory, where the workers write their scores.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

LIMIT_S = 1800

output = Path(os.environ["TFCTL_OUTPUT"])
workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
end = time.monotonic() + LIMIT_S
while len(scores := sorted(output.glob("rate-*.json"))) < workers:
    if time.monotonic() > end:
        sys.exit(f"{len(scores)} of {workers} scores in {output} after {LIMIT_S} s: do all hosts share this directory?")
    time.sleep(0.5)
best = max((json.loads(score.read_text()) for score in scores), key=lambda found: found["accuracy"])
print(f"best of {workers}: rate {best['rate']}, test accuracy {best['accuracy']:.4f}", flush=True)
