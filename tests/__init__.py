"""Tests: one folder per package, plus fakes that everybody may use."""
