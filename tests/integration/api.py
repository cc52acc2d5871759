"""A small client for tests: JSON over one HTTPS connection, with the administrator's client certificate made by apiserver.sh or hack/cluster."""
import http.client
import json
import os
import ssl


class Api:
    def __init__(self, folder, port=None, host="127.0.0.1"):
        self.host = host
        self.port = port or int(dict(p.split("=") for p in open(os.path.join(folder, "ports")).read().split())["SECURE"])
        self.context = ssl.create_default_context(cafile=os.path.join(folder, "ca.crt"))
        self.context.load_cert_chain(os.path.join(folder, "admin.crt"), os.path.join(folder, "admin.key"))
        self.connection = None

    def call(self, method, path, body=None, content_type="application/json"):
        """Status and decoded answer; one retry when the kept connection had gone."""
        data = json.dumps(body) if body is not None else None
        for last in (False, True):
            try:
                if not self.connection:
                    self.connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=60)
                self.connection.request(method, path, data, {"Content-Type": content_type})
                answer = self.connection.getresponse()
                text = answer.read()
                return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text
            except (OSError, http.client.HTTPException):
                self.connection = None
                if last:
                    raise
        raise AssertionError("not reached")

    def ok(self, *args, **kw):
        status, body = self.call(*args, **kw)
        assert 200 <= status < 300, (args, status, body)
        return body

    def merge(self, path, body):
        return self.ok("PATCH", path, body, "application/merge-patch+json")

    def list(self, path):
        return self.ok("GET", path)["items"]
