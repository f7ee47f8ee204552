"""Our own experiments: studies, probes and benchmarks. Nothing outside this folder imports it."""

from base.interrupt import while_starting

while_starting()
