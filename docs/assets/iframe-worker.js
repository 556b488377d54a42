// Search in pages that are opened as files. A browser starts no worker from a file, so this class takes the place of
// `Worker` there: it runs the script in a hidden frame, and passes messages between the frame and the page.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      // the script posts its answers to its own window, as a worker does
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
      this.load(url).then(
        () => {
          const messages = this.waiting;
          this.waiting = null;
          messages.forEach((data) => this.postMessage(data));
        },
        () => this.dispatchEvent(new ErrorEvent("error", { message: `${url} could not be loaded` })),
      );
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }

    load(url) {
      return new Promise((loaded, failed) => {
        const inside = this.frame.contentDocument;
        const script = inside.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = loaded;
        script.onerror = failed;
        inside.body.append(script);
      });
    }
  };
  window.Worker = window.IFrameWorker;
}
