"""When a page of Streamlit shows the result of what was done on it, as JavaScript for the page.

The state of the script that the page shows is not enough: between a click and the start of the run that
answers it, it is that of the run before.
"""

from __future__ import annotations

WATCH = """(() => {
    const NOTHING = 0, RUN = 1, END = 2, UPLOAD = 3;
    const FILE_URLS_REQUEST = 16, RERUN = 11, FRAGMENT = 5, IS_AUTOMATIC = 6;
    const METADATA = 2, NEW_SESSION = 4, FINISHED = 6, FINISHED_EARLY = 2, RUN_OF = 6, FRAGMENTS = 2;
    let awaited = NOTHING, wholePage = false;
    window.isAnswered = () => awaited === NOTHING;

    // The fields of a message of Protocol Buffers by number: bytes, or an integer.
    const fieldsOf = (bytes) => {
        const fields = {};
        let at = 0;
        const integer = () => {
            for (let value = 0, scale = 1; ; scale *= 128) {
                const byte = bytes[at++];
                value += (byte % 128) * scale;
                if (byte < 128) return value;
            }
        };
        while (at < bytes.length) {
            const tag = integer(), value = integer();
            fields[Math.floor(tag / 8)] = tag % 8 === 2 ? bytes.subarray(at, at + value) : value;
            if (tag % 8 === 2) at += value;
        }
        return fields;
    };
    const empty = new Uint8Array();
    const sent = (bytes) => {
        const fields = fieldsOf(bytes);
        if (fields[FILE_URLS_REQUEST]) awaited = UPLOAD;
        if (!fields[RERUN]) return;
        const rerun = fieldsOf(fields[RERUN]);
        if (rerun[IS_AUTOMATIC]) return;
        awaited = RUN;
        wholePage = !rerun[FRAGMENT]?.length;
    };
    const received = ({ data }) => {
        const fields = fieldsOf(new Uint8Array(data));
        if (awaited === RUN && fields[NEW_SESSION]) {
            const run = fieldsOf(fieldsOf(fields[METADATA] ?? empty)[RUN_OF] ?? empty);
            if (!(wholePage && run[FRAGMENTS])) awaited = END;
        } else if (awaited === END && FINISHED in fields && fields[FINISHED] !== FINISHED_EARLY) {
            const shown = () => { if (awaited === END) awaited = NOTHING; };
            requestAnimationFrame(() => setTimeout(shown));
        }
    };
    const sockets = new WeakSet();
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (data) {
        if (data instanceof Uint8Array) {
            if (!sockets.has(this)) this.addEventListener("message", received);
            sockets.add(this);
            sent(data);
        }
        return send.call(this, data);
    };
    // No run answers an upload that is refused.
    const request = XMLHttpRequest.prototype.send;
    XMLHttpRequest.prototype.send = function (...body) {
        this.addEventListener("loadend", () => {
            if (awaited === UPLOAD && !(this.status >= 200 && this.status < 300)) awaited = NOTHING;
        });
        return request.apply(this, body);
    };
})()"""
"""For each page before its own scripts: follows what goes to the server and what comes back."""

ON_SCREEN = "() => new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)))"
"""Resolves after the page has sent what an event of the mouse or the keyboard causes."""

IS_SETTLED = """() => window.isAnswered()
    && document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"""
