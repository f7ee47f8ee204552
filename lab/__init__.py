"""Our own experiments: studies, probes and benchmarks. Nothing outside this folder imports it."""
