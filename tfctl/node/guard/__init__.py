"""The guard of a job: a process on each of its hosts that applies the job's policy without a client.

Root starts it with the job's tasks (tfctl.node.guards). It runs as user tfctl-guard until the job has ended, over all
attempts of the job. The guard of the *head*, the host of the first decider, decides; the others report to it and carry
out its orders.

    rules.py        what to do, as pure functions over the states of all tasks
    head.py         the head: put reports together, follow the rules, decide on orders, notify people
    members.py      the other hosts, as the head sees them: connections, reports, orders
    strangers.py    connections to the head that have not authenticated yet
    attempts.py     start the next attempt on all hosts or on none
    member.py       any other host: report, obey, and stop the tasks here if the head is silent for too long
    host_access.py  this host: its tasks' states, and the requests that the node part serves as root
    link.py         an authenticated connection between two guards
    keys.py         its keys
    credentials.py  what root passes to this guard
    notify.py       run the program and send the POST of the policy
"""
