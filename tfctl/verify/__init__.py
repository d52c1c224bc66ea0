"""`tfctl verify`: prove that the installed software works, by ordinary jobs on the hosts."""
