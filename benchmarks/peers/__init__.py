"""The same federated rounds in other public simulators, run by thin adapters of ours; none of their code is here."""
