// What a waiting room did, second by second: sums that only grow become what happened lately.

import type { RoomFigures } from './types'

export interface Sample extends RoomFigures {
  /** Unix milliseconds. */
  time: number
}

/** Over how long waits that have ended are averaged. */
const LATELY_MS = 60_000

/** At each sample: how long those waited on average who were let in from the line lately, in
 * seconds; null where nobody was. Sums begin anew with each process. */
export function waited(samples: Sample[]): (number | null)[] {
  let from = 0
  return samples.map((now) => {
    while (samples[from].time < now.time - LATELY_MS) from += 1
    const before = samples[from]
    const people = now.entered - before.entered
    const seconds = now.waited_seconds - before.waited_seconds
    return people > 0 && seconds >= 0 ? seconds / people : null
  })
}

/** What keeps the line from moving, in words; empty while nothing does. */
export function bound(now: RoomFigures, seats: number, perMinute: number): string {
  if (now.waiting === 0) return ''
  if (now.seats >= seats) return 'Every seat is taken: the line moves as visitors leave.'
  if (now.admitted_last_minute >= perMinute) return 'As many have come in this minute as may: the line moves with the rate.'
  return ''
}
