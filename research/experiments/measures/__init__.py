"""What is measured at a point: functions of JSON values, in modules by subject, for `research.experiments.runner`.

All randomness comes from the point's seed; nothing here protects anyone.
"""
