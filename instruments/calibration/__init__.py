"""Calibration of the judge on simulated worlds with known ground truth, judged like real measurements."""
