"""Our own experiments: studies, probes and benchmarks. Nothing outside this folder imports it."""

from vaswani.interrupt import while_starting

while_starting()
