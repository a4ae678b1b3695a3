"""The knowledge: pure models and rules. No I/O, no clock, no engine."""
