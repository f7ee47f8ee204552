"""Tests of the lab: `make lab-test`."""
