"""Measure which small changes of the source (mutants) the tests notice: `scripts/mutants`.

This is a program of its own because of the tests. mutmut and cosmic-ray run one mutant at a time, with the tests that
reach it in the process of pytest. Here, half of the tests run the changed source in other processes, and a mutant that
no quick test notices would have to run through tests of whole commands, which take minutes: days for 300 mutants.
Therefore those mutants run through these tests together (trial.py). A mutant counts as killed only if a test fails with
it alone. In rare cases, a survivor may have been hidden by another one.

mutants.py finds and draws the mutants, tree.py runs tests with some of them in a copy of the checkout, where plugin.py
records the results, and report.py prints them.
"""
