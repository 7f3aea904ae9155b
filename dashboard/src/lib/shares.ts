// What weights come to. `share(i) = weight(i) / sum of the weights of all candidates`; who is down
// or disabled is no candidate, and its part goes to the others in proportion.

export interface Weighed {
  weight: number
  /** Whether it may get new requests now. */
  usable: boolean
}

/** Shares in 0..1, in the order of `items`. All 0 when there is no candidate. */
export function shares(items: Weighed[]): number[] {
  const weights = items.map((item) => (item.usable && item.weight > 0 ? item.weight : 0))
  const sum = weights.reduce((all, weight) => all + weight, 0)
  return weights.map((weight) => (sum === 0 ? 0 : weight / sum))
}

/** What is wrong with a weight as typed, or nothing. */
export function weightFault(weight: number | null | undefined): string | undefined {
  if (weight === null || weight === undefined || Number.isNaN(weight)) return 'weight is required'
  if (weight < 0 || weight > 1) return `weight ${weight} is outside 0..1`
  if (Math.abs(weight * 100 - Math.round(weight * 100)) > 1e-9) return `weight ${weight} is not a multiple of 0.01`
  return undefined
}

/** Whether an endpoint of the live state may get new requests. */
export function inService(endpoint: { state: string; reason: string }): boolean {
  // Unmonitored ones count as healthy; those whose first result is awaited do not.
  return endpoint.state === 'healthy' || (endpoint.state === 'unknown' && endpoint.reason === 'no monitor')
}
