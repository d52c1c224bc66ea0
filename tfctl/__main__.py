"""`python -m tfctl` is `tfctl`."""

from tfctl.cli.main import main

if __name__ == "__main__":
    main()
