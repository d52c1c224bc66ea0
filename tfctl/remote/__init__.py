"""Access to other machines: ssh connections, inventories, provisioning."""
