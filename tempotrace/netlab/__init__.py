"""A measurement of clock daemons on the user's own machine: network namespaces, or hosts over ssh.

`run` starts it and brings back what each node wrote, `series` reads that, `report` fits laws and draws. The shell
scripts beside them are what really runs; every node, be it a namespace or a host, runs the same one.
"""
