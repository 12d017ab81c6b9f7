"""Calibration of the judge on simulated worlds with known ground truth, which are judged like real measurements."""
