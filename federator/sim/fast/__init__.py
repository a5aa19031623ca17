"""The fast engine: the federation's decisions without its messages, on flat numbers.

For plain traces: every workload one job, all tenants of one priority, no time limits, nobody
evicted, launches that start at once. Where nothing can change an answer it is not asked for again;
apart from that each module is one of ``federator.sched``, of which it names the rules it keeps.
"""
