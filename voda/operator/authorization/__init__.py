"""Whether a caller of the API may have voda make a job: voda's rights are never lent to who lacks them.

In reading order: `submit_rights` asks the API server about the caller; `pod_templates` and `pod_security` are pure, and
say what the pods of a manifest use, and what the Pod Security Standards forbid of them.
"""
