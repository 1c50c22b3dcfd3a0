// Steps of the profile: its local peaks, and what is live.

import { entryAt } from "../../../memplan_engine/plotting/frontend/columns.js";

const PROMINENT = 0.05;

/** The first step of each local peak, from which it falls by a twentieth of the highest or more on both sides. */
export function localPeaks({ profileStart, profileLive }) {
  const least = PROMINENT * profileLive.reduce((most, bytes) => Math.max(most, bytes), 0);
  const peaks = [];
  let [top, low] = [-1, 0];
  profileLive.forEach((bytes, j) => {
    if (top < 0) {
      low = Math.min(low, bytes);
      if (bytes >= low + least && bytes > 0) top = j;
    } else if (bytes > profileLive[top]) {
      top = j;
    } else if (bytes <= profileLive[top] - least && bytes < profileLive[top]) {
      peaks.push(profileStart[top]);
      [top, low] = [-1, bytes];
    }
  });
  if (top >= 0) peaks.push(profileStart[top]);
  return peaks;
}

/** The live bytes at a step. */
export function liveAt({ profileStart, profileLive }, step) {
  return profileLive[entryAt(profileStart, step)] ?? 0;
}
