// Pages opened from a folder may not start workers; the site's search lives in one.
// There it gets a hidden frame instead, with the few things of a worker that it uses.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.postMessage = (data) => this.tell(this, data);
      const script = inside.document.createElement("script");
      script.src = new URL(url, location);
      this.ready = new Promise((loaded) => (script.onload = loaded));
      inside.document.body.append(script);
    }
    tell(whom, data) {
      setTimeout(() => {
        const event = new MessageEvent("message", { data });
        whom.dispatchEvent(event);
        if (whom === this && this.onmessage) this.onmessage(event);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.tell(this.inside, data));
    }
  };
}
