// What Streamlit calls for the feed: it draws nothing, and hands the server's answers to the chart.

import { portOf } from "./ports.js";

export default function hand({ data, setStateValue }) {
  const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
  const { key } = JSON.parse(new TextDecoder().decode(data.subarray(8, 8 + length)));
  const port = portOf(key);
  port.send = (request) => setStateValue("request", request);
  if (port.message === data) return;
  port.message = data;
  port.listener?.();
}
