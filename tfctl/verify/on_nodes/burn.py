"""Keep every GPU of a host, or without one its processors, under load. Reports speed, wrong results and memory errors.

Each device multiplies the same two matrices again and again, and compares each product with the first one.
"""

import os
import re
import statistics
import sys
import threading
import time

from gpus import fields
from result import report
from software import devices as seen_devices

#: The sides of the matrices, and how many samples of the speed are taken.
SIDE = {"GPU": 8192, "CPU": 1024}
SAMPLES = 30
#: Products may differ in their last digits, because threads add in any order.
TOLERANCE = 1e-4


def main():
    import tensorflow as tf

    tf.compat.v1.enable_eager_execution()  # TensorFlow 1.15
    seconds = float(os.environ["VERIFY_LOAD_S"])
    devices = [device for device in seen_devices(tf) if device.startswith("GPU")] or ["CPU:0"]
    before = {device: readings(device) for device in devices}
    found, faults = {}, []
    threads = [threading.Thread(target=put_under_load, args=(tf, device, seconds, found, faults)) for device in devices]
    for thread in threads:
        thread.start()
    hottest = dict.fromkeys(devices)
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(5.0, seconds / SAMPLES))
        for device in devices:
            celsius = readings(device).get("temperature.gpu")
            hottest[device] = max(filter(None, (celsius, hottest[device])), default=None)
    if faults:
        raise faults[0]
    for device in devices:
        key = "ecc.errors.uncorrected.volatile.total"
        then, now = before[device].get(key), readings(device).get(key)
        found[device]["ecc_errors"] = None if then is None or now is None else max(0, now - then)
        found[device]["celsius"] = hottest[device]
    return {"burned": [found[device] for device in devices]}


def put_under_load(tf, device, seconds, found, faults):
    """Put the device under load, and add what was measured to ``found``, or an exception to ``faults``."""
    try:
        found[device] = load(tf, device, seconds)
    except Exception as fault:
        faults.append(fault)


def load(tf, device, seconds):
    side = SIDE[device[:3]]
    with tf.device("/" + device):
        a, b = tf.random.stateless_normal([side, side], [1, 2]), tf.random.stateless_normal([side, side], [3, 4])
        first = tf.matmul(a, b)
        allowed = TOLERANCE * float(tf.reduce_max(tf.abs(first)))
        ends, samples, wrong = time.monotonic() + seconds, [], 0
        while time.monotonic() < ends:
            count, began = 0, time.monotonic()
            while time.monotonic() - began < seconds / SAMPLES:
                worst = float(tf.reduce_max(tf.abs(tf.matmul(a, b) - first)))
                wrong += not worst <= allowed  # a result that is not a number is wrong too
                count += 1
            samples.append(count * 2.0 * side**3 / (time.monotonic() - began) / 1e9)
            sys.stdout.write(f"{device} {samples[-1]:.0f} GFLOP/s\n")
    return {
        "device": device,
        "name": name(device),
        "gflops": round(statistics.median(samples), 1),
        "lowest_gflops": round(min(samples), 1),
        "wrong": wrong,
    }


def name(device):
    return ", ".join(reported(device, "name")) or device[:3]


def readings(device):
    """Return {field: number} of what nvidia-smi reports about a GPU."""
    names = "temperature.gpu", "ecc.errors.uncorrected.volatile.total"
    said = zip(names, reported(device, *names))
    return {field: int(text) for field, text in said if re.match("[0-9]+$", text)}


def reported(device, *names):
    """Return these fields of a device, or []. CUDA_VISIBLE_DEVICES has the UUIDs, in TensorFlow's order."""
    kind, _, number = device.partition(":")
    uuids = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return fields(uuids[int(number)], *names) if kind == "GPU" and int(number) < len(uuids) else []


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    report(main)
