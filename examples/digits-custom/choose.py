"""Wait for the score of every worker in TF_CONFIG, and print which learning rate was best."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

output = Path(os.environ["TFCTL_OUTPUT"])
workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
while len(scores := sorted(output.glob("rate-*.json"))) < workers:
    time.sleep(0.5)
best = max((json.loads(score.read_text()) for score in scores), key=lambda found: found["accuracy"])
print(f"best of {workers}: rate {best['rate']}, test accuracy {best['accuracy']:.4f}", flush=True)
