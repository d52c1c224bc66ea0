"""Access to other machines: ssh connections, sessions with their node parts, and inventories."""
