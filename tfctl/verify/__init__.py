"""`tfctl verify`: prove that what is installed works, by jobs that run on the hosts as every job does."""
