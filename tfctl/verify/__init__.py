"""`tfctl verify`: prove that what is installed works, by running ordinary jobs on the hosts."""
