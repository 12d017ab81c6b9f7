"""Calibration of the judge: simulated worlds whose truth is known, judged like real measurements."""
