-- Jobs: payloads are JSON.

-- Builds: trust, context and what conditions read.

-- Webhooks: labels and bodies.

-- Access: tokens, browser sessions and login links.

