"""A fake Horovod: the few names that tfctl_runtime uses, in one rank of several."""
