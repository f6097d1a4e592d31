"""What other programs ask in words of their own: kube-scheduler, HiveD, and clients of Voda Scheduler."""
