"""`python -m tfctl` is `tfctl`."""

from tfctl.cli.entry import main

if __name__ == "__main__":
    main()
